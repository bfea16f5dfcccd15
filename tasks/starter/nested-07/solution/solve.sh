#!/bin/bash
cd /app || exit 1
mkdir archive
echo forest > archive/notes.py
