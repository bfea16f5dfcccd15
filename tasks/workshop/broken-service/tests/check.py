"""Starts the pristine gateway with the repaired configuration and asks it."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

SOCKET = "/app/gateway/run/gateway.sock"
SHOP = {"status": 200, "site": "shop.example", "backend": "shop", "address": "10.0.0.5:8080"}
CART = {"status": 200, "site": "shop.example", "backend": "cart", "address": "10.0.0.6:8080"}
BLOG = {"status": 200, "site": "blog.example", "backend": "blog", "address": "10.0.0.7:8080"}
DOCS = {"status": 200, "site": "docs.example", "backend": "docs", "address": "10.0.0.8:8000"}
CASES = [
    ("shop.example", "/", SHOP),
    ("shop.example", "/cartoon", SHOP),
    ("shop.example", "/cart", CART),
    ("store.example", "/cart/7", CART),
    ("www.shop.example", "/x", SHOP),
    ("blog.example", "/2010", BLOG),
    ("news.example", "/", BLOG),
    ("blog.example", "/2009/may", {"status": 410, "site": "blog.example"}),
    ("news.example", "/drafts/1", {"status": 404, "site": "blog.example"}),
    ("docs.example", "/", DOCS),
    ("help.example", "/cart", DOCS),
    ("nobody.example", "/", {"status": 404, "site": "default"}),
    ("shop.example", "/admin", {"status": 403}),
    ("docs.example", "/admin/users", {"status": 403}),
    ("blog.example", "/administration", BLOG),
]


def ask(host, path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(3)
        client.connect(SOCKET)
        client.sendall(f"{host} {path}\n".encode())
        return json.loads(client.makefile().readline())


program = Path("/tmp/pristine-gatewayd")
shutil.copy("/tests/gatewayd", program)
Path(SOCKET).unlink(missing_ok=True)
gateway = subprocess.Popen([sys.executable, "-I", str(program), "/app/gateway/gateway.conf"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
try:
    line = gateway.stdout.readline()  # comes when it listens, or with the complaint
    if "listening" not in line:
        sys.exit(line)
    for host, path, expected in CASES:
        expected = {**expected, "workers": 2, "timeout": 1.5}
        if (reply := ask(host, path)) != expected:
            sys.exit(f"{host}{path}: {reply}, expected {expected}")
finally:
    gateway.kill()
    gateway.wait()
