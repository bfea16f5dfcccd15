#!/bin/bash
cd /app || exit 1
echo summer paper > report.log
