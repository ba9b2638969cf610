# SPDX-License-Identifier: MIT
"""The bench's picture: microseconds over size, ours and JAX's beside, by gnuplot, as spmt-perf's are."""

import os
import re
import shutil
import subprocess


class Failure(Exception):
    """A sentence for the user."""


def ready(path):
    """Before anything is measured. The file: path itself where it ends with .svg, else jax.svg in the folder path, which is made if need be."""
    if not path:
        raise Failure("--plot: the file's name is empty")
    if not shutil.which("gnuplot"):
        raise Failure("--plot: gnuplot is not installed (Debian: gnuplot-nox)")
    folder, name = os.path.split(path) if path.endswith(".svg") else (path, "jax.svg")
    folder = folder or "."
    try:
        if not path.endswith(".svg") and not os.path.isdir(folder):
            os.mkdir(folder)
    except OSError as error:
        raise Failure("--plot %s: %s" % (path, error.strerror)) from None
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise Failure("--plot %s: %s is no folder that can be written" % (path, folder))
    return os.path.join(folder, name)


def read(lines):
    """What the bench has printed: its first line without the mark, and call, bytes, microseconds with ours and with JAX's."""
    title, figures = "", []
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if line.startswith("# jax "):
            title = line[2:]
        if not line or line.startswith("#"):
            continue
        found = re.match(r"(\w+) (\d+) (\d+\.\d+) (\d+\.\d+) [\d.]+( [\d.]+ (?:[\d.]+|-))?$", line)
        if not found:
            raise Failure("line %d is none of the bench's: %s" % (number, line))
        figures.append((found[1], int(found[2]), float(found[3]), float(found[4])))
    if not figures:
        raise Failure("there are no figures to draw")
    return title, figures


def _size(count):
    for unit in ("", "K", "M", "G"):
        if count < 1024:
            return "%d%s" % (count, unit)
        count //= 1024
    return "%dT" % count


def _quoted(text):
    """In gnuplot's single quotes, where a quote is two."""
    return "'%s'" % text.replace("'", "''")


def program(file, title, figures):
    """A line a call, and a dashed one of its colour for JAX's."""
    calls = list(dict.fromkeys(call for call, *_ in figures))
    ticks = ", ".join("'%s' %d" % (_size(8**k), 8**k) for k in range(1, 13))
    lines = [
        "set terminal svg size 900,560 dynamic background rgb 'white' font 'sans,13'",
        "set output %s" % _quoted(file),
        "set title %s noenhanced" % _quoted(title),
        "set xlabel 'bytes a device'",
        "set ylabel 'microseconds a call'",
        "set logscale x 2",
        "set logscale y",
        "set grid",
        "set key outside right top Left reverse noenhanced",
        "set xtics (%s)" % ticks,
    ]
    plots = []
    for i, call in enumerate(calls):
        lines += ["$line%d << END" % i] + ["%d %.6g %.6g" % row[1:] for row in sorted(figures) if row[0] == call] + ["END"]
        plots.append("$line%d using 1:2 with linespoints lw 2 pt 7 lc %d title %s" % (i, i + 1, _quoted(call)))
        plots.append("$line%d using 1:3 with linespoints lw 1 dt 2 pt 6 lc %d title %s" % (i, i + 1, _quoted(call + ", JAX's")))
    return "\n".join(lines + ["plot " + ", ".join(plots)]) + "\n"


def draw(file, title, figures):
    try:
        done = subprocess.run(["gnuplot"], input=program(file, title, figures), text=True)
    except OSError as error:
        raise Failure("--plot: gnuplot: %s" % error.strerror) from None
    if done.returncode:
        raise Failure("--plot: gnuplot did not make %s (exit status %d)" % (file, done.returncode))
