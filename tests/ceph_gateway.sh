#!/usr/bin/env bash
# Starts a one-machine Ceph with its S3 gateway on loopback, runs a command with the environment pointing to it, and stops it.
# Everything is in memory and in a temporary folder. Needs root and, on Debian:
#   apt-get install --no-install-recommends radosgw ceph-mon ceph-mgr ceph-osd
# For example, the tests of object storage, and a study:
#   tests/ceph_gateway.sh pytest tests/test_store.py tests/test_s3.py tests/test_s3_inputs.py tests/test_job.py
#   tests/ceph_gateway.sh python -m raystitch.sweep configs/quickstart.yaml --storage s3://bucket/raystitch
set -euo pipefail

D=$(mktemp -d /tmp/ceph-XXXXXX)
PIDS=()
stop() {
    for pid in "${PIDS[@]}"; do { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true; done
    rm -rf "$D"
}
trap stop EXIT
KEY=ceph-test-key SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
MON=${CEPH_MON_PORT:-26789} RGW=${CEPH_RGW_PORT:-27480} FSID=$(cat /proc/sys/kernel/random/uuid) OSD=$(cat /proc/sys/kernel/random/uuid)

cat >"$D/ceph.conf" <<CONF
[global]
fsid = $FSID
mon host = v2:127.0.0.1:$MON
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = $D/keyring
run dir = $D
admin socket = $D/\$name.asok
log file = $D/\$name.log
mon data = $D/mon
osd data = $D/osd
mgr data = $D/mgr
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
mon allow pool size one = true
mon warn on pool no redundancy = false
osd max object name len = 256
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:$RGW
rgw data = $D/rgw
CONF

export CEPH_CONF=$D/ceph.conf
mkdir "$D/mon" "$D/osd" "$D/mgr" "$D/rgw"
{
    ceph-authtool --create-keyring "$D/keyring" --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool "$D/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
    ceph-authtool "$D/keyring" --gen-key -n mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
    ceph-authtool "$D/keyring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' --cap mgr 'allow profile osd'
    ceph-authtool "$D/keyring" --gen-key -n client.rgw.a --cap mon 'allow rw' --cap osd 'allow rwx' --cap mgr 'allow rw'
    monmaptool --create --fsid "$FSID" --addv a "[v2:127.0.0.1:$MON]" "$D/monmap"
    ceph-mon --mkfs -i a --monmap "$D/monmap" --keyring "$D/keyring"
    ceph-mon -f -i a & PIDS+=($!)
    until timeout 5 ceph -s; do sleep 0.5; done
    ceph auth import -i "$D/keyring"
    ceph-mgr -f -i x & PIDS+=($!)
    ceph osd new "$OSD"
    ceph-osd -i 0 --mkfs --osd-uuid "$OSD"
    ceph-osd -f -i 0 & PIDS+=($!)
    until ceph osd stat | grep -q '1 up'; do sleep 0.5; done
    radosgw -f -n client.rgw.a & PIDS+=($!)
    until curl -sf -o "$D/answer" "http://127.0.0.1:$RGW"; do kill -0 "${PIDS[3]}"; sleep 0.5; done
    radosgw-admin user create --uid=t --display-name=t --access-key=$KEY --secret="$SECRET"
} >"$D/start.log" 2>&1 || { cat "$D/start.log" >&2; exit 1; }

export AWS_ENDPOINT_URL=http://127.0.0.1:$RGW AWS_ACCESS_KEY_ID=$KEY AWS_SECRET_ACCESS_KEY=$SECRET AWS_DEFAULT_REGION=us-east-1 RAYSTITCH_TEST_S3=1
python -c 'import s3fs; s3fs.S3FileSystem().mkdir("bucket")'
"$@"
