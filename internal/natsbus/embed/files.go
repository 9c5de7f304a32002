package embed

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"

	"github.com/tutti-project/tutti"
)

// LastWhole reads the files of a stream and changes nothing. No server may use dir at that time. LastWhole returns
// the sequence of the last record before the first damaged record, or 0 if there are no files. LastWhole also returns
// the place of the first damaged record. If there is no damage, `damage` is empty.
//
// When a server starts, it truncates a damaged file where the damage begins, even in the middle of the file. Then the
// server continues with the records before that place. A loss of power normally damages only the end of the last
// file. So a caller must call LastWhole before the server starts, to find out whether other records are damaged, too.
//
// The files have the format of nats-server 2.15 (filestore.go, rebuildStateFromBufLocked).
func LastWhole(dir, stream string) (seq uint64, damage string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil {
		return 0, "", err
	}
	blocks := map[int]string{}
	for _, file := range files {
		index, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".blk"))
		if err != nil || blocks[index] != "" {
			return 0, "", tutti.Errorf(tutti.CodeDamaged, "%s is not a file of the stream %s", file, stream)
		}
		blocks[index] = file
	}
	for _, index := range slices.Sorted(maps.Keys(blocks)) {
		raw, err := os.ReadFile(blocks[index])
		if err != nil {
			return 0, "", err
		}
		last, at, err := lastWhole(raw, stream, index)
		if err != nil {
			return 0, "", err
		}
		if seq = max(seq, last); at < len(raw) {
			return seq, fmt.Sprintf("%s at byte %d of %d", blocks[index], at, len(raw)), nil
		}
	}
	return seq, "", nil
}

// These flags are in a record's length and sequence.
const (
	hasHeader = uint32(1) << 31
	erased    = uint64(1) << 63
	tombstone = uint64(1) << 62

	recordHead = 22 // 4 bytes for the length, 8 for the sequence, 8 for the time, 2 for the subject's length
	recordSum  = 8
)

// lastWhole reads one block up to the first damaged record. lastWhole returns the sequence of the
// record before it, and the offset where that record ends.
func lastWhole(raw []byte, stream string, index int) (seq uint64, at int, err error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, index))
	hash, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return 0, 0, err
	}
	le := binary.LittleEndian
	for len(raw)-at >= recordHead {
		record := raw[at:]
		length, subject := le.Uint32(record), int(le.Uint16(record[20:]))
		begin := recordHead + subject // begin of the content that the checksum covers
		if length&hasHeader != 0 {
			begin += 4 // the checksum does not cover the header's length
		}
		size := int(length &^ hasHeader)
		if size > len(record) || size < begin+recordSum {
			break
		}
		hash.Reset()
		_, _ = hash.Write(record[4:20]) // writing to a hash never fails
		_, _ = hash.Write(record[recordHead : recordHead+subject])
		_, _ = hash.Write(record[begin : size-recordSum])
		if !bytes.Equal(hash.Sum(nil), record[size-recordSum:size]) {
			break
		}
		if s := le.Uint64(record[4:]); s&(erased|tombstone) == 0 {
			seq = max(seq, s)
		}
		at += size
	}
	return seq, at, nil
}
