"""Control of a live run from outside its process: a Unix-domain socket in the run directory.

`run.py` opens it around any run, `server.py` serves it and says who may command, `client.py` is the
other end, `protocol.py` what they say to each other.
"""
