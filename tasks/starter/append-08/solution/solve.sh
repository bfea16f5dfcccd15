#!/bin/bash
cd /app || exit 1
echo forest >> input.md
