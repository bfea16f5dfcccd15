#!/bin/bash
cd /app || exit 1
echo silent silent > items.txt
