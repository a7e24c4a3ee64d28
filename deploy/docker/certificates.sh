#!/usr/bin/env bash
# Makes what Dask's processes know each other by: an authority, and one certificate that it signed.
#   ./certificates.sh [FOLDER]     FOLDER is ./certificates unless given; it must not exist
# Dask compares no host names: whoever holds key.pem may connect, and so may run code.
set -euo pipefail

folder=${1:-$(dirname "${BASH_SOURCE[0]}")/certificates}
if [[ -e $folder ]]; then
  echo "certificates.sh: $folder exists; delete it for new certificates, then restart every Dask process" >&2
  exit 1
fi
umask 077
mkdir -p "$folder"
curve=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

openssl req -x509 "${curve[@]}" -days 825 -subj "/CN=actlas Dask authority" \
  -keyout "$folder/authority.key" -out "$folder/authority.pem" 2>/dev/null
openssl req "${curve[@]}" -subj "/CN=actlas Dask" \
  -keyout "$folder/key.pem" -out "$folder/request.pem" 2>/dev/null
openssl x509 -req -in "$folder/request.pem" -days 825 -sha256 \
  -CA "$folder/authority.pem" -CAkey "$folder/authority.key" -CAcreateserial \
  -out "$folder/certificate.pem" 2>/dev/null
# Nobody needs to sign another one: a new authority is as cheap.
rm "$folder/authority.key" "$folder/request.pem"
rm -f "$folder"/*.srl
echo "$folder: authority.pem, certificate.pem and key.pem, valid for 825 days"
