#!/bin/bash
set -euo pipefail
cd /app/gateway
mkdir -p run
sed -i -e 's#^listen = .*#listen = /app/gateway/run/gateway.sock#' -e 's/^workers = 2.*/workers = 2/' \
  -e 's/^timeout = 1.5$/timeout = 1.5s/' -e 's/\*\.cnf/*.conf/' gateway.conf
cd conf.d
sed -i 's/Default/default/' 10-default.conf
printf '[site shop.example]\nalias = www.shop.example store.example\nroute = /cart -> cart\nroute = / -> shop\n' > 20-shop.conf
sed -i -e 's/^address: /address = /' -e 's/store.example //' -e 's/=>/->/' 30-blog.conf
mv 40-docs.conf.disabled 40-docs.conf
sed -i 's/-> doc$/-> docs/' 40-docs.conf
../gatewayd --check ../gateway.conf
