#!/bin/bash
cd /app || exit 1
cp record.json notes.log
