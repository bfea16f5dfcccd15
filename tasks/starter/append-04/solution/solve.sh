#!/bin/bash
cd /app || exit 1
echo summer >> config.log
