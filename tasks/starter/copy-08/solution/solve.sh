#!/bin/bash
cd /app || exit 1
cp items.csv index.log
