package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// maxMessage bounds one line on the socket and in the files of a run.
const maxMessage = 64 << 20

// maxSealed bounds a sealed file and the book of a run. The agent writes these files, but Puppet, which
// is root too, could change them.
const maxSealed = 2 * maxMessage

// seal encodes a value as a line of JSON that ends with its checksum. Without the checksum, the disk could return a
// wrong byte, and so change an outcome or a value unnoticed.
func seal(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(raw, "\t%08x\n", crc32.ChecksumIEEE(raw)), nil
}

// unseal decodes a line that seal wrote. The error of unseal names the file.
func unseal(path string, line []byte, out any) error {
	damaged := func(why string) error {
		return tutti.Errorf(tutti.CodeInternal, "%s is damaged: %s", filepath.Clean(path), why)
	}
	raw, sum, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"))
	switch {
	case len(line) == 0:
		return damaged("it is empty")
	case !ok:
		return damaged("its end is missing")
	case string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(raw)):
		return damaged("its checksum is wrong")
	}
	return tutti.Wrap(tutti.CodeInternal, json.Unmarshal(raw, out), "%s is damaged", filepath.Clean(path))
}

// writeSealed writes a file of mode 0600 by rename. When writeSealed returns, content and name are
// on disk.
func writeSealed(path string, value any) error {
	raw, err := seal(value)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, raw, 0o600)
}

func readSealed[T any](path string) (T, error) {
	var out T
	raw, err := excerpt.Read(path, maxSealed)
	if err != nil {
		return out, err
	}
	return out, unseal(path, raw, &out)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// The function `modified` returns when a file was last written. The function returns the zero time
// if the file is gone.
func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
