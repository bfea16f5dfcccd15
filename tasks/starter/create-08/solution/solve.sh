#!/bin/bash
cd /app || exit 1
echo lemon river > out.log
