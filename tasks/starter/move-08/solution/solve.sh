#!/bin/bash
cd /app || exit 1
mv log.txt alpha.log
