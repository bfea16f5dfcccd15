#!/bin/bash
cd /app || exit 1
echo paper >> log.json
