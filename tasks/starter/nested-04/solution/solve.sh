#!/bin/bash
cd /app || exit 1
mkdir config
echo orange > config/out.json
