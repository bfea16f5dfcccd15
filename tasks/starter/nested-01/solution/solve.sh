#!/bin/bash
cd /app || exit 1
mkdir backup
echo cloud > backup/gamma.txt
