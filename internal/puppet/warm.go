package puppet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// The constants are the bounds of the warm parent.
const (
	warmReady  = time.Minute      // time to load Puppet
	warmAnswer = 10 * time.Second // how long the parent may take to make a child
	warmRetry  = 5 * time.Minute  // how long to wait after a failed start of a parent
	warmMemory = 256 << 20        // a parent that uses more memory is replaced
	factsAge   = time.Minute      // facts that were collected in advance may be at most this old
)

// Warm starts runs as children of a parent that has Puppet loaded
// (docs/adr/0014-warm-runner.md). Any number of goroutines may use it.
type Warm struct {
	root     string
	launcher string
	idle     time.Duration

	mu     sync.Mutex
	parent *parent
	pid    atomic.Int64 // pid of the parent
	failed time.Time    // when and why the last start of a parent failed
	why    error
	last   factsAhead // the run whose order is used to collect facts again
	ahead  factsAhead
	at     time.Time // when the facts in `ahead` were requested
	cold   *collector
	turn   bool // the node waits for its turn
	wanted chan wire.Expectation
	used   chan struct{}
}

// factsAhead are facts that the parent has or will have soon. An empty dir means that there
// are no facts.
type factsAhead struct {
	dir  string // the run whose order was used to collect the facts
	code string // the code for whose runs the facts were collected
}

// NewWarm returns a Warm that has not started. Warm looks for Puppet below root. If no run needs the parent for
// the time `idle`, the parent ends. If `idle` is 0, there is never a parent.
func NewWarm(root, launcher string, idle time.Duration) *Warm {
	return &Warm{root: root, launcher: launcher, idle: idle, wanted: make(chan wire.Expectation, 1), used: make(chan struct{}, 1)}
}

// Run starts parents. Run ends the parent after the idle time and when ctx ends.
func (w *Warm) Run(ctx context.Context) error {
	defer w.end()
	rest := time.NewTimer(w.idle)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-w.wanted:
			w.ready(e)
		case <-w.used:
			rest.Reset(w.idle)
		case <-rest.C:
			w.rest()
		}
	}
}

// Expect tells Run which run may follow. If there is no parent, Run makes one. When the node begins to wait for its
// turn, Run also collects facts.
func (w *Warm) Expect(e wire.Expectation) {
	if w.idle == 0 {
		return
	}
	select {
	case <-w.wanted: // drop an earlier expectation
	default:
	}
	select {
	case w.wanted <- e:
	default: // another caller was faster
	}
}

// Memory returns how much memory the parent uses, in bytes.
func (w *Warm) Memory() int64 { return resident(int(w.pid.Load())) }

func (w *Warm) ready(e wire.Expectation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	begins := e == wire.ExpectTurn && !w.turn
	w.turn = e == wire.ExpectTurn
	if e == wire.ExpectNothing || w.expect() != nil {
		return // the next Start returns the reason
	}
	if begins && w.last.dir != "" && (w.ahead != w.last || time.Since(w.at) > factsAge) {
		w.collect()
	}
}

func (w *Warm) expect() error {
	switch {
	case w.parent != nil:
	case time.Since(w.failed) < warmRetry:
		return w.why
	default:
		install, err := Find(w.root)
		if err == nil {
			w.parent, err = startParent(install, w.launcher)
		}
		if err == nil {
			w.pid.Store(int64(w.parent.cmd.Process.Pid))
		}
		if err != nil {
			w.failed, w.why = time.Now(), fmt.Errorf("no warm parent: %w", err)
			return w.why
		}
	}
	select {
	case w.used <- struct{}{}:
	default:
	}
	return nil
}

// Collect collects facts for the next run with the same code. It uses the order of the ended run in dir.
// The argument `code` is any name that distinguishes this code from other code. Collect drops facts that
// were collected before. If there is no parent, another process collects the facts, but runs cannot use
// them. ReadFactsNow returns the result.
func (w *Warm) Collect(dir, code string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cold.end()
	w.last = factsAhead{dir: dir, code: code}
	if w.collect(); w.ahead == w.last {
		return nil
	}
	var err error
	w.cold, err = startCollector(w.root, w.launcher, dir)
	return err
}

func (w *Warm) collect() {
	w.ahead = factsAhead{}
	if w.parent == nil || w.parent.say(warmOrder{Do: "facts", Dir: w.last.dir}) != nil {
		return // the next run collects its own facts
	}
	w.ahead, w.at = w.last, time.Now()
}

// Start makes the child that executes the run in dir with this code. If code is empty, the child collects its own
// facts. If Start returns no child, no child will begin, and the error contains the reason. The error is nil if the
// warm parent is turned off.
func (w *Warm) Start(dir, code string) (*Process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cold.end() // a run now begins, so nothing else may collect facts
	if w.idle == 0 {
		return nil, nil
	}
	if w.parent != nil && (w.Memory() > warmMemory || !w.parent.current(w.root)) {
		w.drop()
	}
	for {
		fresh := w.parent == nil
		if err := w.expect(); err != nil {
			return nil, err
		}
		order := warmOrder{Do: "run", Dir: dir}
		if code != "" && code == w.ahead.code {
			order.FactsFor, order.FactsAge = w.ahead.dir, factsAge.Seconds()
		}
		p, err := w.parent.run(order)
		if err == nil {
			return p, nil
		}
		w.drop() // from here on, no child can begin
		if p, bad := noted(dir); !errors.Is(bad, os.ErrNotExist) {
			return p, bad // the child has begun, and may have ended
		}
		if fresh || !errors.Is(err, errChanged) {
			return nil, err
		}
	}
}

func (w *Warm) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
}

func (w *Warm) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
	w.cold.end()
}

// The method `drop` ends the parent. The parent's children continue.
func (w *Warm) drop() {
	if w.parent != nil {
		w.parent.end()
		w.parent, w.ahead = nil, factsAhead{}
		w.pid.Store(0)
	}
}

// parent is a process that has Puppet loaded.
type parent struct {
	install Installation
	ruby    os.FileInfo // the file of its Ruby
	cmd     *exec.Cmd
	conn    net.Conn
	answers *bufio.Reader
}

// errChanged means that the loaded Puppet differs from the Puppet on disk.
var errChanged = errors.New("the files from which Puppet was loaded have changed")

// startParent starts a parent and returns when the parent has loaded Puppet.
func startParent(install Installation, launcher string) (*parent, error) {
	ruby, err := os.Stat(install.Ruby)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	argv := []string{install.Ruby, launcher, "--warm"}
	cmd := inScope("tutti-warm-"+strconv.FormatInt(time.Now().UnixNano(), 36)+".scope", "Puppet, loaded for later runs", argv, "--property=Delegate=yes")
	cmd.Stdin = theirs
	err = cmd.Start()
	theirs.Close() // as long as we have this end open, we would not notice the parent's end
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	p := &parent{install: install, ruby: ruby, cmd: cmd, conn: ours, answers: bufio.NewReaderSize(ours, 64<<10)}
	if _, err := p.answer(warmReady); err != nil {
		p.end()
		return nil, fmt.Errorf("it did not load Puppet: %w", err)
	}
	return p, nil
}

// current returns true if a run that starts now would use the same Puppet and Ruby as the parent. After a vendor's
// package is installed beside Debian's, runs use the vendor's Puppet. After an upgrade of Ruby, the path of the Ruby
// leads to a new file. The parent itself checks the files that it has loaded.
func (p *parent) current(root string) bool {
	install, err := Find(root)
	if err != nil || install != p.install {
		return false
	}
	ruby, err := os.Stat(install.Ruby)
	return err == nil && os.SameFile(ruby, p.ruby)
}

// socketPair returns the two ends of a socket: our end, and the end that a process gets as its stdin. No other
// process can use this socket.
func socketPair() (net.Conn, *os.File, error) {
	syscall.ForkLock.RLock() // without the lock, a process that starts now would inherit the descriptors
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		syscall.ForkLock.RUnlock()
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	syscall.ForkLock.RUnlock()
	mine, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "warm")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
	}
	return conn, theirs, err
}

// warmReply is a line from the parent.
type warmReply struct {
	PID     int    `json:"pid"`
	Start   uint64 `json:"start"`
	Changed string `json:"changed"`
	Error   string `json:"error"`
}

func (p *parent) answer(within time.Duration) (warmReply, error) {
	var out warmReply
	if err := p.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return out, err
	}
	line, err := p.answers.ReadSlice('\n') // a line that is longer than the buffer is not an answer
	if err == nil {
		err = json.Unmarshal(line, &out)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return out, tutti.Errorf(tutti.CodeDeadline, "it has not answered within %s", within)
	case err != nil:
		return out, fmt.Errorf("it ended: %w", err)
	case out.Changed != "":
		return out, fmt.Errorf("%w: %s", errChanged, out.Changed)
	case out.Error != "":
		return out, tutti.Errorf(tutti.CodeUnavailable, "%s", out.Error)
	}
	return out, nil
}

// warmOrder is a line to the parent.
type warmOrder struct {
	Do       string  `json:"do"`
	Dir      string  `json:"dir"`
	FactsFor string  `json:"facts_for,omitempty"` // the run whose facts may be used
	FactsAge float64 `json:"facts_age,omitempty"` // the maximum age of these facts, in seconds
}

func (p *parent) say(order warmOrder) error {
	line, err := json.Marshal(order)
	if err == nil {
		err = p.conn.SetWriteDeadline(time.Now().Add(warmAnswer))
	}
	if err == nil {
		_, err = p.conn.Write(append(line, '\n'))
	}
	return tutti.Wrap("", err, "it ended")
}

// The method `run` requests a child from the parent.
func (p *parent) run(order warmOrder) (*Process, error) {
	if err := p.say(order); err != nil {
		return nil, err
	}
	reply, err := p.answer(warmAnswer)
	if err != nil {
		return nil, err
	}
	return &Process{pid: reply.PID, start: reply.Start, scope: scopeOf(order.Dir)}, nil
}

// The method `end` closes the parent's socket and returns when the parent is gone. Normally the parent then ends
// by itself. If the parent hangs, the method kills it.
func (p *parent) end() {
	p.conn.Close()
	late := time.AfterFunc(warmAnswer, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.cmd.Wait() // the parent's exit status does not concern its children
}

// resident returns the memory of a process in bytes. The function returns 0 if the memory
// is unknown or the process is gone.
func resident(pid int) int64 {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	fields := strings.Fields(string(raw))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
