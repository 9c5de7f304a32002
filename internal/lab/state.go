package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/tutti-project/tutti"
)

// state describes a lab. Up writes the state to disk before it creates anything else. All names that
// the lab uses on the outer machine can be computed from the state.
type state struct {
	Name   string       `json:"name"`
	Domain string       `json:"domain"`
	Subnet netip.Prefix `json:"subnet"`
	Hosts  []hostState  `json:"hosts"`

	dir string // the lab's directory, inside the machine's state directory
}

type hostState struct {
	Name    string     `json:"name"`
	Names   []string   `json:"names"`
	Address netip.Addr `json:"address"`
	Base    string     `json:"base"`
	Binds   []Bind     `json:"binds,omitempty"`
}

const stateFile = "lab.json"

// id distinguishes labs in names that must be short. The id is computed from the directory. So labs with the same
// name in two state directories have different ids.
func (s state) id() string {
	sum := sha256.Sum256([]byte(s.dir))
	return hex.EncodeToString(sum[:4])
}

// bridgeRE matches the bridge of any lab.
var bridgeRE = regexp.MustCompile(`^tl[0-9a-f]{8}$`)

// These methods return names on the outer machine. The name of an interface has at most 15 characters.
func (s state) bridge() string             { return "tl" + s.id() }
func (s state) table() string              { return "tutti_lab_" + s.id() }
func (s state) veth(host int) string       { return s.bridge() + "h" + strconv.FormatInt(int64(host), 36) }
func (s state) tap(host int) string        { return s.bridge() + "s" + strconv.FormatInt(int64(host), 36) }
func (s state) relayGroup(host int) string { return s.cgroup(host) + ".relay" }
func (s state) cgroup(host int) string     { return "tutti-lab." + s.id() + "." + strconv.Itoa(host) }
func (s state) hostDir(host int) string    { return filepath.Join(s.dir, "hosts", strconv.Itoa(host)) }
func (s state) netns(host int) string      { return filepath.Join(s.hostDir(host), "net") }
func (s state) consoleLog(host int) string { return filepath.Join(s.hostDir(host), "console.log") }

// mac returns the hardware address of the bridge (n is 0) or of a host (n is 1 or more). The address never changes,
// because other hosts remember it.
func (s state) mac(n int) string {
	id := s.id()
	return fmt.Sprintf("02:%s:%s:%s:%s:%02x", id[0:2], id[2:4], id[4:6], id[6:8], n)
}

// outer returns the outer machine's address on the bridge, which is the first address of the subnet.
func (s state) outer() netip.Addr { return s.Subnet.Addr().Next() }

// firstHost is the last byte of the first host's address. The addresses with a smaller last byte are reserved.
const firstHost = 11

func (s state) address(host int) netip.Addr {
	bytes := s.Subnet.Addr().As4()
	bytes[3] = byte(firstHost + host)
	return netip.AddrFrom4(bytes)
}

// save creates the lab's directory with the state, and returns when both are on disk. After that, Down finds
// everything that is created later.
func (s state) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.dir, stateFile)
	if err := writeDurably(path+".part", text); err != nil {
		return err
	}
	if err := os.Rename(path+".part", path); err != nil {
		return err
	}
	return errors.Join(syncDir(s.dir), syncDir(filepath.Dir(s.dir)))
}

func writeDurably(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// labDir returns the directory of the named lab.
func (m Machine) labDir(name string) string { return filepath.Join(m.state(), name) }

// load reads the state of the named lab.
func (m Machine) load(name string) (state, error) {
	if err := validateLabName(name); err != nil {
		return state{}, err
	}
	s := state{dir: m.labDir(name)}
	text, err := os.ReadFile(filepath.Join(s.dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, tutti.Errorf(tutti.CodeNotFound, "there is no lab %q: `tutti lab list` shows the labs", name)
	}
	if err != nil {
		return state{}, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return state{}, fmt.Errorf("state of lab %q: %w", name, err)
	}
	return s, nil
}

// names returns the names of all labs that have a directory, sorted. names includes labs whose Up was killed before
// it had created anything.
func (m Machine) names() ([]string, error) {
	entries, err := os.ReadDir(m.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && validateLabName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, err
}
