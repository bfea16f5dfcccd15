#!/bin/bash
cd /app || exit 1
mkdir draft
echo copper > draft/items.log
