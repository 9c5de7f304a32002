package puppet

import (
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
)

// FactsNow is the result of collecting facts after a run.
type FactsNow struct {
	Facts   tutti.Digest `json:"facts"`
	Changed []string     `json:"changed"` // names of the facts that differ from the run's facts
	Watch   []string     `json:"watch"`   // directories in which Facter looks for facts of this machine
	// Began is when the collection began. At is when the collection ended.
	Began time.Time `json:"began"`
	At    time.Time `json:"-"`
}

const (
	factsNowFile = "facts-now.json"
	// coldFacts is how long a collector may take.
	coldFacts = 5 * time.Minute
)

// ReadFactsNow returns the facts that were last collected after the run in dir. ReadFactsNow returns
// os.ErrNotExist if no facts have been collected yet.
func ReadFactsNow(dir string) (FactsNow, error) {
	var now FactsNow
	file, err := excerpt.Open(filepath.Join(dir, factsNowFile))
	if err != nil {
		return now, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil {
		err = json.NewDecoder(io.LimitReader(file, maxLists)).Decode(&now)
	}
	now.At = info.ModTime()
	return now, tutti.Wrap(tutti.CodeDamaged, err, "%s", file.Name())
}

// collector is a process that collects facts without a warm parent.
type collector struct {
	cmd  *exec.Cmd
	late *time.Timer
	over chan struct{}
}

// startCollector collects facts after the run in dir. The function fails if Puppet is not
// installed.
func startCollector(root, launcher, dir string) (*collector, error) {
	install, err := Find(root)
	if err != nil {
		return nil, err
	}
	unit := "tutti-facts-" + strconv.FormatInt(time.Now().UnixNano(), 36) + ".scope"
	cmd := inScope(unit, "Facts after a Puppet run", []string{install.Ruby, launcher, "--facts", dir})
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &collector{cmd: cmd, over: make(chan struct{})}
	c.late = time.AfterFunc(coldFacts, c.kill)
	go func() {
		defer close(c.over)
		_ = cmd.Wait() // the collector's output is in a file
		c.late.Stop()
	}()
	return c, nil
}

// The method `kill` ends the collector and all processes that it has started. The
// collector leads its own session.
func (c *collector) kill() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }

// The method `end` kills the collector and returns when the collector is gone.
func (c *collector) end() {
	if c == nil {
		return
	}
	select {
	case <-c.over:
	default:
		c.kill()
		<-c.over
	}
}
