"""A whole agent, run in the sandbox by its own Python: asks, runs the shell block, asks again."""

# ruff: noqa: T201
import json
import os
import re
import subprocess
import sys
import urllib.request

ADDRESS = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
HEADERS = {
    "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
    "Content-Type": "application/json",
}
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    with urllib.request.urlopen(urllib.request.Request(ADDRESS, body, HEADERS)) as response:
        answer = json.load(response)["choices"][0]["message"]["content"]
    print(answer, flush=True)
    messages.append({"role": "assistant", "content": answer})
    block = re.search(r"```sh\n(.*?)```", answer, re.DOTALL)
    if block is None:
        break
    done = subprocess.run(["sh", "-c", block[1]], capture_output=True, text=True)
    print(done.stdout + done.stderr, flush=True)
    messages.append({"role": "user", "content": done.stdout + done.stderr or "(no output)"})
