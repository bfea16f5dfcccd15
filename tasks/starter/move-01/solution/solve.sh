#!/bin/bash
cd /app || exit 1
mv table.md table.json
