#!/bin/bash
cd /app || exit 1
echo silver >> summary.txt
