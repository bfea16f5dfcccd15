#!/bin/bash
cd /app || exit 1
mkdir draft
echo summer > draft/gamma.md
