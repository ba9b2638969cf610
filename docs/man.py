#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Man pages from the comments of include/spmt.h.

  man.py HEADER --out FOLDER [--version V]   writes FOLDER/NAME.3, one for each public name; former ones of its own go, nothing else
  man.py HEADER --list                       prints the public names, one a line, with their page
  man.py HEADER --text [NAME ..]             prints the pages as plain text: all, or those of these names

A group is a comment and the declarations that follow it, up to the next comment or an empty line. It is one page, named
after its first name; the other names lead to it. A comment with nothing behind it is a section of spmt(3), as the first one is.
A public name without a comment, one that stands twice, or a comment that does not begin with a short sentence is an error.
"""
import argparse
import os
import re
import sys
import textwrap

PRIVATE = re.compile(r'_$|^SPMT_H$|^SPMT_API$|^SPMT_SHARED_ENUMS$')
NOTHING = re.compile(r'\s*$|extern "C" \{|\}$|\s*#\s*(?!define\b)')  # parts groups, as an empty line does
SUMMARY = 110  # characters of the line below NAME
MADE = '.\\" Made by docs/man.py of include/spmt.h.'
OURS = re.compile(re.escape(MADE) + r'$|\.so man3/(spmt|SPMT)\w*\.3$')  # the first line of a page, and of what leads to one


class Wrong(Exception):
    pass


def c_lines(text):
    """The lines that a C compiler sees, numbered; of conditions only those on __cplusplus are decided."""
    out, stack = [], []  # stack: None for a condition that is not ours, else whether its lines are taken
    for number, line in enumerate(text.split('\n'), 1):
        word = re.match(r'\s*#\s*(if|ifdef|ifndef|else|elif|endif)\b\s*(\S*)', line)
        if word and word[1] in ('if', 'ifdef', 'ifndef'):
            stack.append(word[1] == 'ifndef' if word[2] == '__cplusplus' else None)
        ours = word and stack[-1] is not None
        if word and word[1] == 'else' and ours:
            stack[-1] = not stack[-1]
        elif word and word[1] == 'endif':
            stack.pop()
        if False not in stack and not ours:
            out.append((number, '' if word else line))
    return out


def comment_text(lines):
    """The text of a comment, its frame taken off."""
    out = []
    for i, line in enumerate(lines):
        line = line.expandtabs(8)
        if i == 0:
            line = re.sub(r'^\s*/\*+ ?', '', line)
        line = re.sub(r'\s*\*/\s*$', '', line)
        if i:
            line = re.sub(r'^ \* ?|^ \*$|^ {3}', '', line)
        out.append(line.rstrip())
    return '\n'.join(out).strip('\n')


def prototype(code):
    words = re.sub(r'\( ', '(', ' '.join(code.split()))
    return '\n'.join(textwrap.wrap(words, 90, subsequent_indent='        ', break_on_hyphens=False))


class Item:
    """A comment, or a declaration with the comment behind it."""

    def __init__(self, number, lines):
        self.number, self.lines = number, lines
        self.comment = lines[0].startswith('/*')
        self.text = comment_text(lines) if self.comment else ''
        self.banner = bool(re.match(r'/\* ---- ', lines[0]))
        self.code, self.behind = ('', '') if self.comment else self.parts()

    def parts(self):
        code = '\n'.join(self.lines)
        behind = ''
        if not re.search(r'[{]|^#', code, re.M):  # comments inside a body stay where they are
            behind = ' '.join(' '.join(c.split()) for c in re.findall(r'/\*\s*(.*?)\s*\*/', code, re.S))
            code = re.sub(r'\s*/\*.*?\*/', '', code, flags=re.S)
        code = code.replace('SPMT_API ', '')
        return prototype(code) if self.function() else code, behind

    def function(self):
        if self.lines[0].startswith('#'):
            return None
        found = re.search(r'SPMT_API\b[^({]*?(\w+)\s*\(', '\n'.join(self.lines), re.S)
        return found[1] if found else None

    def names(self):
        if self.comment:
            return []
        if self.function():
            return [self.function()]
        whole = '\n'.join(self.lines)
        bare = re.sub(r'/\*.*?\*/', '', whole, flags=re.S)
        found = []
        if bare.startswith('#'):
            macro = re.match(r'#\s*define\s+(\w+)', bare)
            found = [macro[1]] if macro else []
        elif bare.startswith('typedef'):
            found = [re.search(r'(\w+)\s*;\s*$', bare.strip())[1]]
        elif '{' in bare:
            tag = re.match(r'(?:struct|enum)\s+(\w+)', bare)
            found = [tag[1]] if tag else []
        return [name for name in found if name.startswith(('spmt', 'SPMT')) and not PRIVATE.search(name)]


def items(text):
    """Items in their order; None for an empty line between them."""
    lines, out, i = c_lines(text), [], 0
    while i < len(lines):
        number, line = lines[i]
        end = i
        if NOTHING.match(line):
            out.append(None)
        elif line.startswith('/*'):
            while '*/' not in lines[end][1]:
                end += 1
        elif line.startswith('#'):
            while lines[end][1].endswith('\\'):
                end += 1
        else:
            end = declaration_end(lines, i)
        if not NOTHING.match(line):
            out.append(Item(number, [l for _, l in lines[i:end + 1]]))
        i = end + 1
    return out


def declaration_end(lines, i):
    code, end = '', i
    while end < len(lines):
        code += lines[end][1] + '\n'
        bare = re.sub(r'/\*.*?\*/', '', code, flags=re.S)
        if '/*' not in bare and bare.rstrip().endswith(';') and bare.count('{') == bare.count('}'):
            return end
        end += 1
    raise Wrong('line %d: a declaration that does not end' % lines[i][0])


class Page:
    def __init__(self, lead, declared):
        self.items = declared
        names = [name for item in declared for name in item.names()]
        self.number = lead.number if lead else declared[0].number
        self.text = lead.text if lead else ''
        # Functions first. A struct and a function may have one name.
        self.names = list(dict.fromkeys([item.function() for item in declared if item.function()] + names))

    def summary(self):
        text = ' '.join((self.text or self.items[0].behind).split())
        for pattern in (r'[.;:](?= |$)', r'[,.;:](?= |$)'):
            first = re.split(pattern, text, maxsplit=1)[0]
            if 0 < len(first) <= SUMMARY:
                return first
        raise Wrong('line %d: the comment of %s does not begin with a sentence of at most %d characters: %s' % (
            self.number, self.names[0], SUMMARY, text[:60]))


def pages(text):
    """The page of spmt(3), as a list of comments, and all others."""
    overview, out, lead, group = [], [], None, []

    def close():
        nonlocal lead, group
        public = [item for item in group if item.names()]
        if lead and not public and not group:
            overview.append(lead)
        elif lead and public:
            out.append(Page(lead, public))
        elif public:
            for item in public:
                if not item.behind:
                    raise Wrong('line %d: %s has no comment' % (item.number, item.names()[0]))
                out.append(Page(None, [item]))
        lead, group = None, []

    for item in items(text):
        if item is None:
            close()
        elif item.comment:
            close()
            if not item.banner and not item.text.startswith('SPDX'):
                lead = item
        else:
            group.append(item)
    close()
    seen = {}
    for page in out:
        for name in page.names:
            if name in seen:
                raise Wrong('line %d: %s stands in line %d, too' % (page.number, name, seen[name]))
            seen[name] = page.number
    if not overview or not out:
        raise Wrong('no comments, or no public names')
    return overview, out


# ---- a comment's text as blocks: ('text', words), ('item', term, words), ('head', words)

def blocks(text):
    out = []
    for line in text.split('\n'):
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        term = re.match(r'(\S.*?) {2,}(\S.*)$', bare)
        if not bare:
            out.append(None)
        elif bare.startswith('- '):
            out.append(['item', '-', bare[2:], indent + 2])
        elif term:
            out.append(['item', term[1], term[2], indent + 2])
        elif out and out[-1] and out[-1][0] == 'item' and indent >= out[-1][3]:
            out[-1][2] += ' ' + bare
        elif out and out[-1] and out[-1][0] == 'text':
            out[-1][2] += ' ' + bare
        else:
            out.append(['text', '', bare, indent])
    return [tuple(block[:3]) for block in out if block]


def sections(text):
    """A comment as (heading, text) pairs: a heading is a line of its own at the left, with indented ones below."""
    out, lines = [['', []]], text.split('\n')
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ''
        if re.match(r'[A-Z]\w*( \w+)?$', line) and below.startswith('  '):
            out.append([line, []])
        else:
            out[-1][1].append(line)
    return [(head, textwrap.dedent('\n'.join(body)).strip('\n')) for head, body in out]


# ---- groff

def roff(text):
    text = text.replace('\\', '\\e').replace('-', '\\-').replace("'", '\\(aq').replace('`', '\\(ga').replace('^', '\\(ha').replace('~', '\\(ti')
    return '\n'.join('\\&' + line if line.startswith(('.', '\\(aq')) else line for line in text.split('\n'))


def roff_blocks(text):
    out, before = [], ''
    for kind, term, words in blocks(text):
        if kind == 'item' and term == '-':
            out += ['.IP \\(bu 2', roff(words)]
        elif kind == 'item':
            out += ['.TP', '.B "%s"' % roff(term).replace('"', '\\(dq'), roff(words)]
        else:
            out += ['.PP' if before else '', roff(words)]
        before = kind
    return [line for line in out if line]


def roff_code(code):
    return ['.nf', roff(code.expandtabs(8)), '.fi']


def roff_page(name, names, summary, body, version):
    out = [MADE,
           '.TH %s 3 "" "libspmt %s" "libspmt"' % (name, version),
           '.SH NAME', roff(', '.join(names)) + ' \\- ' + roff(summary)]
    for head, lines in body:
        out += ['.SH ' + head.upper()] + lines
    return '\n'.join(out) + '\n'


def returns(page):
    if not any(re.match(r'int\b', item.code) for item in page.items if item.function()):
        return None
    return ('A negative value is an error: -errno or one of SPMT_ERR_*. spmt_strerror(3) gives its kind, spmt_last_error(3) the '
            'sentence. Otherwise 0, or the number that was asked for.')


def see_also(page, where):
    text = ' '.join([page.text] + ['\n'.join(item.lines) for item in page.items])
    found = {where[name] for name in re.findall(r'\bspmt_\w+|\bSPMT_\w+', text) if name in where}
    return ['spmt'] + sorted(found - {page.names[0]})


def page_body(page, where):
    """(heading, kind, content) of a page, for both forms. kind: code, text."""
    body = [('Synopsis', 'code', '#include <spmt.h>\n\n' + '\n'.join(item.code for item in page.items))]
    words = page.text
    for item in page.items:
        if item.behind and (page.text or len(page.items) > 1):
            words += '\n\n%s  %s' % (item.names()[0], item.behind)
    body.append(('Description', 'text', words or page.items[0].behind))
    if returns(page):
        body.append(('Return value', 'text', returns(page)))
    body.append(('See also', 'text', ', '.join(name + '(3)' for name in see_also(page, where))))
    return body


def overview_body(overview):
    head = overview[0].text
    body = [('Synopsis', 'code', '#include <spmt.h>\n\ncc prog.c $(pkg-config --cflags --libs spmt)')]
    for heading, text in sections(head):
        body.append((heading or 'Description', 'text', text))
    for comment in overview[1:]:
        title, dot, text = comment.text.partition('.')
        if not dot or ' ' in title:
            raise Wrong('line %d: a comment that belongs to nothing: %s' % (comment.number, comment.text[:60]))
        body.append((title.strip(), 'text', text.strip()))
    return body


def plain(name, names, summary, body):
    out = ['%s - %s' % (', '.join(names), summary), '']
    for heading, kind, content in body:
        out += [heading.upper()]
        if kind == 'code':
            out += ['    ' + line if line else '' for line in content.expandtabs(8).split('\n')]
        else:
            for block, term, words in blocks(content):
                lead = {'text': '', 'item': term + '  '}[block]
                out += textwrap.wrap(lead + words, 100, initial_indent='    ', subsequent_indent='    ' if block == 'text' else '        ')
                out.append('')
        if out[-1]:
            out.append('')
    return '\n'.join(out)


def arguments():
    parser = argparse.ArgumentParser(description='man pages from the comments of spmt.h')
    parser.add_argument('header')
    parser.add_argument('--out')
    parser.add_argument('--version', default='')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--text', nargs='*')
    return parser.parse_args()


def main(args):
    with open(args.header, encoding='utf-8') as f:
        overview, all_pages = pages(f.read())
    where = {name: page.names[0] for page in all_pages for name in page.names}
    made = {'spmt': (['spmt'], 'a communicator runtime for machines with many GPUs', overview_body(overview))}
    for page in all_pages:
        made[page.names[0]] = (page.names, page.summary(), page_body(page, where))
    if args.list:
        print('\n'.join('%s %s' % pair for pair in sorted(where.items())))
    if args.text is not None:
        for name in args.text or list(made):
            first = where.get(name, name)
            if first not in made:
                raise Wrong('there is no page of %s' % name)
            print(plain(first, *made[first]))
    if args.out:
        make_room(args.out)
        write(args.out, made, where, args.version)


def make_room(out):
    """The folder may be anybody's, so a name alone is no reason to remove a file. Pages go, as what they describe may have gone."""
    if not os.path.isdir(out):
        os.makedirs(out)
        os.chmod(out, 0o755)  # meson installs the folder with the mode that it has here
    for entry in os.scandir(out):
        if entry.name.endswith('.3') and entry.is_file():
            with open(entry.path, encoding='utf-8', errors='replace') as f:
                ours = OURS.match(f.readline())
            if ours:
                os.remove(entry.path)


def write(out, made, where, version):
    for name, (names, summary, body) in made.items():
        parts = [(head, roff_code(text) if kind == 'code' else roff_blocks(text)) for head, kind, text in body]
        with open(os.path.join(out, name + '.3'), 'w', encoding='utf-8') as f:
            f.write(roff_page(name, names, summary, parts, version))
    for name, first in where.items():
        if name != first:
            with open(os.path.join(out, name + '.3'), 'w', encoding='utf-8') as f:
                f.write('.so man3/%s.3\n' % first)


if __name__ == '__main__':
    args = arguments()
    try:
        main(args)
        print(end='', flush=True)
    except (Wrong, UnicodeDecodeError) as wrong:
        sys.exit('man.py: %s: %s' % (args.header, wrong))
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes what is left when it exits
        # A reader that has seen enough, as head, needs no sentence.
        sys.exit(1 if isinstance(error, BrokenPipeError) else 'man.py: %s: %s' % (error.filename or 'the output', error.strerror))
