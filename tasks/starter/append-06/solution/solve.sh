#!/bin/bash
cd /app || exit 1
echo castle >> todo.md
