#!/bin/bash
cd /app || exit 1
cp result.md index.log
