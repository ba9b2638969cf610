# SPDX-License-Identifier: MIT
"""The bench of JAX's calls, briefly, and its pictures: by a gnuplot that writes down what it is told, and by a real one where there is one."""

import os
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom

import tap

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bindings", "jax", "bench")
FIGURES = """# jax 1.2.3, 2 x gpu, 'quoted'
# call bytes ours_us jax_us times rest_us net_times
psum 65536 32.0 36.5 1.14 20.1 1.38
psum 1024 31.0 36.0 1.16 20.1 1.45
ppermute 1024 39.0 51.0 1.31 40.0 -
ahead 1024 290.1 760.0 2.62
"""


class Place:
    """A folder with a gnuplot that writes down, which ends as it is told, and with figures."""

    def __init__(self, ends=0, figures=FIGURES):
        self._kept = tempfile.TemporaryDirectory()
        self.folder = self._kept.name
        self.ends = ends
        os.mkdir(self("with"))
        with open(self("with/gnuplot"), "w") as file:
            file.write('#!/bin/sh\n/bin/cat >>"$GNUPLOT_TOLD"\nexit %d\n' % ends)
        os.chmod(self("with/gnuplot"), 0o755)
        with open(self("figures"), "wb") as file:
            file.write(figures if isinstance(figures, bytes) else figures.encode())

    def __call__(self, name):
        return os.path.join(self.folder, name)

    def run(self, *args, path=None, input=None):
        env = {**os.environ, "GNUPLOT_TOLD": self("told"), "JAX_PLATFORMS": "cpu", "SPMT_BACKEND": "host"}
        env["PATH"] = path if path is not None else self("with") + ":" + env["PATH"]
        env.pop("XLA_FLAGS", None)
        return subprocess.run([sys.executable, BENCH, *args], env=env, capture_output=True, text=True, timeout=600, input=input)

    def told(self):
        with open(self("told")) as file:
            return file.read()


def pictures_of_what_was_printed():
    place = Place()
    done = place.run("--read", place("figures"), "--plot", place("it's new"))
    assert done.returncode == 0, done.stderr
    told = place.told()
    assert "set output '%s/it''s new/jax.svg'\n" % place.folder in told, told
    assert "set title 'jax 1.2.3, 2 x gpu, ''quoted''' noenhanced\n" in told
    assert "$line0 << END\n1024 31 36\n65536 32 36.5\nEND\n" in told and "$line1 << END\n1024 39 51\nEND\n" in told
    plot = told[told.index("plot $line0") :]
    assert plot.count("$line") == 6 and "title 'psum'" in plot and "dt 2 pt 6 lc 2 title 'ppermute, JAX''s'" in plot, plot
    done = place.run("--read", "-", "--plot", place("own.svg"), input=FIGURES)
    assert done.returncode == 0 and "set output '%s'" % place("own.svg") in place.told()


def what_cannot_be_drawn():
    place = Place()
    for args, words in (
        (["--read", place("figures")], "--read is for --plot"),
        (["--read", place("figures"), "--plot", ""], "the file's name is empty"),
        (["--read", place("figures"), "--plot", place("no/such")], "No such file"),
        (["--read", place("figures"), "--plot", place("no/such.svg")], "no folder that can be written"),
        (["--read", place("none"), "--plot", place("x")], "No such file"),
    ):
        done = place.run(*args)
        assert done.returncode and words in done.stderr and "Traceback" not in done.stderr, (args, done.stderr)
    done = place.run("--plot", place("x"), path=place("without"))
    assert done.returncode and "gnuplot is not installed" in done.stderr and not done.stdout, done  # before anything is measured
    for figures, words in (
        ("psum 1024 31\n", "line 1 is none of the bench's"),
        ("psum 1024 3..1 36.0 1.16\n", "line 1 is none of the bench's"),
        (b"\xff\n", "line 1 is none of the bench's"),
        ("# jax\n", "no figures to draw"),
    ):
        place = Place(figures=figures)
        done = place.run("--read", place("figures"), "--plot", place("x"))
        assert done.returncode and words in done.stderr, done.stderr
    place = Place(ends=3)
    done = place.run("--read", place("figures"), "--plot", place("x"))
    assert done.returncode and "gnuplot did not make" in done.stderr and "exit status 3" in done.stderr, done.stderr


def what_cannot_be_measured():
    """Told before anything is measured, and before JAX is loaded."""
    place = Place()
    for args, words in (
        (["--sizes", "1024,x"], "--sizes: 'x' is no whole number from 1 on"),
        (["--sizes", ""], "--sizes: '' is no whole number"),
        (["--sizes=-4"], "--sizes: '-4' is no whole number"),
        (["--sizes", "0"], "--sizes: '0' is no whole number"),
        (["--calls", "psum,nope"], "--calls: 'nope' is none of psum, ppermute,"),
        (["--calls", "psum,"], "--calls: '' is none of"),
        (["--rounds", "0"], "--rounds: '0' is no whole number"),
        (["--links", "0"], "--links: '0' is no whole number"),
        (["--devices", "0"], "--devices: '0' is no whole number"),
    ):
        done = place.run(*args)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr and not done.stdout, (args, done)


def a_run_and_its_picture():
    place = Place()
    real = shutil.which("gnuplot")
    args = "--devices", "2", "--calls", "psum,ahead", "--sizes", "1024,4096", "--rounds", "2", "--links", "2"
    done = place.run(*args, "--plot", place("pictures"), path=os.environ["PATH"] if real else None)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row[:2] for row in rows] == [["psum", "1024"], ["psum", "4096"], ["ahead", "1024"], ["ahead", "4096"]], done.stdout
    if real:
        picture = xml.dom.minidom.parse(place("pictures/jax.svg"))
        assert "JAX's" in picture.toxml()
    else:
        assert "%s %s %s\n" % ("1024", float(rows[0][2]).__format__(".6g"), float(rows[0][3]).__format__(".6g")) in place.told()


tap.main([pictures_of_what_was_printed, what_cannot_be_drawn, what_cannot_be_measured, a_run_and_its_picture])
