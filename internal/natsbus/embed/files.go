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

// LastWhole reads the files of a stream while no server runs on dir, and changes nothing. It returns the last sequence
// up to which every record is whole, 0 without files, and the place of the first record that is not whole, empty if all
// are.
//
// When a server starts, it cuts such a file off where the damage begins, even in the middle, and goes on with the rest,
// or with nothing. A loss of power leaves a torn end. Before the server starts, it must be known whether more than that
// is lost.
//
// The format is that of the file store of nats-server 2.15 (filestore.go,
// rebuildStateFromBufLocked).
func LastWhole(dir, stream string) (seq uint64, damage string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil {
		return 0, "", err
	}
	blocks := map[int]string{}
	for _, file := range files {
		index, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".blk"))
		if err != nil || blocks[index] != "" {
			return 0, "", tutti.Errorf(tutti.CodeDamaged, "%s is no file of the one stream %s", file, stream)
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

// Flags in a record's length and sequence.
const (
	hasHeader = uint32(1) << 31
	erased    = uint64(1) << 63
	tombstone = uint64(1) << 62

	recordHead = 22 // length 4, sequence 8, time 8, length of the subject 2
	recordSum  = 8
)

// lastWhole returns the last sequence of a block's whole records, and the offset where they end.
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
		begin := recordHead + subject // start of the summed content, after the subject
		if length&hasHeader != 0 {
			begin += 4 // the header's length is not summed
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
