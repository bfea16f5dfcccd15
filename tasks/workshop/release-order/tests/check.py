"""Runs the program on hidden graphs; answers are checked by properties and a slow reference."""

import heapq
import itertools
import random
import subprocess
import sys


def run(text):
    done = subprocess.run(["/app/order"], input=text, capture_output=True, text=True, timeout=15)
    return done.returncode, done.stdout


def fail(text, why):
    sys.exit(f"{why} for the input:\n{text[:400]}")


def smallest_order(needs):
    users, missing = {}, {name: len(deps) for name, deps in needs.items()}
    for name, deps in needs.items():
        for dependency in deps:
            users.setdefault(dependency, []).append(name)
    ready = [name.encode() for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    while ready:
        name = heapq.heappop(ready).decode()
        yield name
        for user in users.get(name, ()):
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, user.encode())


def smallest_cycle(needs):
    """By brute force over simple paths of growing length."""
    for length in itertools.count(1):
        paths = [(start,) for start in sorted(needs)]
        for _ in range(length - 1):
            paths = [(*path, dep) for path in paths for dep in sorted(needs[path[-1]])
                     if dep > path[0] and dep not in path]
        closed = [path for path in paths if path[0] in needs[path[-1]]]
        if closed:
            return min(closed)


def text_of(needs, rng):
    lines = ["# generated", ""]
    for name, deps in needs.items():
        deps = sorted(deps)
        rng.shuffle(deps)
        cut = rng.randrange(len(deps) + 1)
        parts = [deps[:cut], deps[cut:]] if rng.random() < 0.3 else [deps]
        lines += [name + rng.choice([":", ": ", " :  "]) + rng.choice([" ", "  "]).join(part) for part in parts]
    rng.shuffle(lines)
    return "\n".join(lines) + "\n"


def expect_order(needs, text):
    status, output = run(text)
    if status != 0 or output.split("\n")[:-1] != list(smallest_order(needs)):
        fail(text, "wrong order")


def expect_cycle(cycle, text):
    status, output = run(text)
    if status != 1 or output != "cycle: " + " -> ".join([*cycle, cycle[0]]) + "\n":
        fail(text, f"wrong cycle, expected {cycle}")


rng = random.Random(5)
names = ["".join(rng.choices("abcXYZ019-_.", k=rng.randrange(1, 6))) for _ in range(60)]
names = sorted({name for name in names if not name.startswith(("-", "."))})

expect_order({"a": set(), "b": {"a"}, "Z": {"b"}, "c": set()}, "b: a\nZ:b\nc:\nb: a a\n")
expect_cycle(["x"], "a: b\nb: a\nx: x\n")
for _ in range(6):  # small graphs without a cycle
    shuffled = rng.sample(names, 20)
    needs = {name: set(rng.sample(shuffled[:i], min(i, rng.randrange(4)))) for i, name in enumerate(shuffled)}
    expect_order(needs, text_of(needs, rng))
for size, degree in ((8, 2), (12, 2), (25, 2), (25, 1), (30, 2)):  # small graphs with cycles
    picked = rng.sample(names, size)
    needs = {name: set(rng.sample(picked, degree)) - ({name} if size > 8 else set()) for name in picked}
    if len(list(smallest_order(needs))) < size:
        expect_cycle(smallest_cycle(needs), text_of(needs, rng))
ring = [f"r{i:03d}" for i in range(399)]
expect_cycle(ring, "".join(f"{n}: {ring[(i + 1) % 399]}\n" for i, n in enumerate(ring)))
big = [f"p{rng.randrange(10**6)}-{i}" for i in range(20000)]
needs = {name: {big[rng.randrange(i)] for _ in range(3)} if i else set() for i, name in enumerate(big)}
expect_order(needs, text_of(needs, rng))
chain = [f"c{i:05d}" for i in range(15000)]
needs = {name: {chain[i + 1]} if i + 1 < len(chain) else set() for i, name in enumerate(chain)}
expect_order(needs, text_of(needs, rng))
