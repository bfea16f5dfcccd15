#!/bin/bash
cd /app || exit 1
echo copper garden > data.py
