#!/bin/bash
cd /app || exit 1
rm draft.json
