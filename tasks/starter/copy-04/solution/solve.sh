#!/bin/bash
cd /app || exit 1
cp items.md index.py
