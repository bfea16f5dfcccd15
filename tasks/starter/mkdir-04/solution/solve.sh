#!/bin/bash
cd /app || exit 1
mkdir alpha
