#!/bin/bash
cd /app || exit 1
echo window cloud > plan.txt
