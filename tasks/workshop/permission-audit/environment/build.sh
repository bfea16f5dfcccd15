#!/bin/bash
# Builds /app/site: contents are irrelevant, modes are what the task is about.
set -euo pipefail
umask 022
mkdir -p /app/site && cd /app/site
dir() { mkdir -p "$2" && chmod "$1" "$2"; }
file() { mkdir -p "$(dirname "$2")" && echo "content of $2" > "$2" && chmod "$1" "$2"; }
file 0644 index.html
file 0666 about.html
file 0755 style.css
file 0644 "news/first post.html"
file 0777 "news/second, longer post.html"
file 0644 cgi/search.cgi
file 0755 cgi/form.cgi
file 4755 cgi/admin.cgi
file 0644 cgi/form.conf
file 0640 site.conf
file 0755 bin/deploy
file 0644 bin/rotate
file 0755 bin/README
file 6755 bin/helper
file 0644 private/staff.txt
file 0640 private/plan.txt
file 0644 private/run.cgi
file 0644 private/keys/site.pem
file 0600 private/keys/old.pem
file 0640 private/keys/tls.conf
file 0644 upload/photo.jpg
file 0664 upload/movie.mp4
file 0777 upload/tmp/x.cgi
file 0644 .htaccess
file 0606 .cache/-rf
ln -s ../../outside/secret.conf private/link.conf
ln -s index.html home.html
ln -s /app/outside outdir
mkdir -p /app/outside && echo secret > /app/outside/secret.conf && chmod 0604 /app/outside/secret.conf
dir 0777 news
dir 0755 cgi
dir 0775 bin
dir 0755 private/keys
dir 0755 private
dir 0777 upload/tmp
dir 0755 upload
dir 0700 .cache
chmod 0777 /app/site
chmod 0711 /app/outside
