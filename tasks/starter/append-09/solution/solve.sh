#!/bin/bash
cd /app || exit 1
echo quick >> result.json
