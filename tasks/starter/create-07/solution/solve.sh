#!/bin/bash
cd /app || exit 1
echo bright happy > story.md
