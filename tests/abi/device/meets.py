#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""meets.py FILE.ll: of clang's unoptimized IR for a GPU, the functions in which a block's threads meet, by whatever they call, and which do not say so.

Prints their names, one a line. Those that are a kernel, or called by one alone, are called once.
"""
import re
import sys

KERNELS = re.compile(r'(run|spmt_kernel)_')


def main():
    says, calls, declared, current = {}, {}, set(), None
    with open(sys.argv[1], encoding='utf-8') as f:
        lines = f.read().split('\n')
    groups = {m[1]: m[2] for m in (re.match(r'attributes #(\d+) = \{(.*)\}', line) for line in lines) if m}
    for line in lines:
        head = re.match(r'(define|declare) .*?@([\w.$]+)\(', line)
        if head:
            current = head[2]
            says[current] = any('convergent' in groups.get(n, '') for n in re.findall(r'#(\d+)', line))
            calls[current] = set()
            if head[1] == 'declare':
                declared.add(current)
        elif current:
            calls[current] |= set(re.findall(r'call [^@]*@([\w.$]+)\(', line))
    meet = {name for name in declared if says[name]}
    if not meet:
        sys.exit('nothing meets there')
    more = meet
    while more:
        more = {name for name in calls if name not in meet and calls[name] & meet}
        meet |= more
    print('\n'.join(sorted(name for name in meet if not says[name] and not KERNELS.match(name))))


main()
