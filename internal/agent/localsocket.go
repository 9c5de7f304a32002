package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
)

const (
	// LocalSocketFile is the socket in the agent's directory through which root requests a local
	// run.
	LocalSocketFile = "local.sock"
	// localWait is how long the agent may take to begin a local run. The agent may be waiting for its
	// server.
	localWait = time.Minute
)

// localRequest and localReply are the only lines of a connection.
type localRequest struct {
	Mode tutti.Mode `json:"mode,omitempty"`
	Box  bool       `json:"box,omitempty"` // request another key for the node's secrets in place of a run
}

type localReply struct {
	Run   tutti.RunID `json:"run,omitempty"`
	Code  tutti.Code  `json:"code,omitempty"`
	Error string      `json:"error,omitempty"`
}

// listenLocal opens the socket, for root only.
func (a *Agent) listenLocal() (net.Listener, error) {
	path := filepath.Join(a.opts.Dir, LocalSocketFile)
	_ = os.Remove(path) // remove the socket of an earlier agent
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o600)
}

func (a *Agent) locals(ctx context.Context, l net.Listener) {
	accept(ctx, l, a.opts.Logger, func(conn net.Conn) {
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		_ = conn.SetReadDeadline(time.Now().Add(localWait))
		in := bufio.NewScanner(conn)
		if !in.Scan() {
			return
		}
		var req localRequest
		out := localReply{}
		err := tutti.Wrap(tutti.CodeInvalid, json.Unmarshal(in.Bytes(), &req), "request")
		switch {
		case err != nil:
		case req.Box:
			wait, cancel := context.WithTimeout(ctx, localWait)
			err = a.rotateBox(wait)
			cancel()
		default:
			out.Run, err = a.askLocal(ctx, req.Mode)
		}
		if err != nil {
			out = localReply{Code: tutti.CodeOf(err), Error: err.Error()}
		}
		_ = json.NewEncoder(conn).Encode(out) // the caller may be gone; the server still gets the run's result
	})
}

// askLocal requests a local run from the claim loop.
func (a *Agent) askLocal(ctx context.Context, mode tutti.Mode) (tutti.RunID, error) {
	if mode != tutti.ModeApply && mode != tutti.ModeNoop {
		return "", tutti.Errorf(tutti.CodeInvalid, "a local run in mode %q", string(mode))
	}
	ctx, cancel := context.WithTimeout(ctx, localWait)
	defer cancel()
	ask := localAsk{mode: mode, said: make(chan localSaid, 1)}
	for offered := false; ; {
		a.mu.Lock()
		active := a.active
		a.mu.Unlock()
		if active != nil && !offered {
			return "", tutti.Errorf(tutti.CodeConflict, "run %s is going on here: see its log, or try again after its end", active.id)
		}
		wanted := a.localAsks
		if offered {
			wanted = nil
		}
		select {
		case wanted <- ask:
			offered = true
		case said := <-ask.said:
			return said.run, said.err
		case <-time.After(retryAfter): // an ordered run may have begun in the meantime
		case <-ctx.Done():
			return "", tutti.Errorf(tutti.CodeDeadline, "the agent has not begun a run within %s: it is waiting for its server, or it is ending", localWait)
		}
	}
}

// AskLocal requests a local run from the agent with the state directory dir. AskLocal returns the run's
// id as soon as the run is about to begin. AskLocal returns CodeUnavailable if there is no agent.
func AskLocal(ctx context.Context, dir string, mode tutti.Mode) (tutti.RunID, error) {
	return askSocket(ctx, dir, localRequest{Mode: mode})
}

// AskBox tells the agent with the state directory dir to create another key for the node's secrets.
// AskBox returns CodeUnavailable if there is no agent or no server.
func AskBox(ctx context.Context, dir string) error {
	_, err := askSocket(ctx, dir, localRequest{Box: true})
	return err
}

func askSocket(ctx context.Context, dir string, req localRequest) (tutti.RunID, error) {
	ctx, cancel := context.WithTimeout(ctx, localWait+2*retryAfter)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, LocalSocketFile))
	if err != nil {
		return "", tutti.Wrap(tutti.CodeUnavailable, err, "no agent answers in %s (as root: systemctl start tutti-agent)", dir)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return "", tutti.Wrap(tutti.CodeUnavailable, err, "the agent in %s", dir)
	}
	var said localReply
	if err := json.NewDecoder(conn).Decode(&said); err != nil {
		return "", tutti.Wrap(tutti.CodeUnavailable, err, "the agent in %s has not answered: it may have ended", dir)
	}
	if said.Error != "" {
		return "", tutti.Errorf(said.Code, "%s", said.Error)
	}
	return said.Run, nil
}
