#!/bin/bash
cd /app || exit 1
echo desert >> table.txt
