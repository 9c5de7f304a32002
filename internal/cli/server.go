package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// ServerInit are the settings of `server init`.
type ServerInit struct {
	Dir, Host, Listen, Bus, Operator, OperatorDir string
	Also                                          []string
	Unit                                          bool
}

// ServerRun are the settings of a running server.
type ServerRun struct {
	Dir, Listen, Bus, Socket string
	Silence                  time.Duration
	MaxRuns                  int
	MaxCompiles              int
	Reserve                  int // disk space in MiB that new work must leave free
	KeepJobs                 int
	KeepReports              int
	KeepReportsFor           time.Duration
	ScrubEvery               time.Duration // 0: never
	// file to which each act is appended as a line of JSON. If AuditFile is empty, there is
	// no file
	AuditFile   string
	AuditSyslog bool   // each act is sent to syslog
	Metrics     string // address of this machine for Prometheus; empty: none
}

func newServerCommand(o *options) *cobra.Command {
	var run ServerRun
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server: the log, the bus and the engine",
		Example: `  tutti server --dir /var/lib/tutti/server
  tutti server --audit-syslog`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if run.KeepJobs < 1 {
				return tutti.Errorf(tutti.CodeInvalid, "--keep-jobs %d must be at least 1", run.KeepJobs)
			}
			if run.KeepReports < 1 || run.KeepReportsFor <= 0 {
				return tutti.Errorf(tutti.CodeInvalid, "--keep-reports %d --keep-reports-for %s: both must be positive", run.KeepReports, run.KeepReportsFor)
			}
			if run.ScrubEvery < 0 {
				return tutti.Errorf(tutti.CodeInvalid, "--scrub-every %s must be 0 (never) or more", run.ScrubEvery)
			}
			if run.MaxCompiles < 1 {
				return tutti.Errorf(tutti.CodeInvalid, "--max-compiles %d must be at least 1", run.MaxCompiles)
			}
			run.Socket = o.conn.Socket
			return o.deps.RunServer(cmd.Context(), run)
		},
	}
	f := cmd.Flags()
	f.StringVar(&run.Dir, "dir", DefaultServerDir, "data directory")
	f.StringVar(&run.Listen, "listen", "", "address for operators (default: as set by init)")
	f.StringVar(&run.Bus, "bus", "", "address for nodes (default: as set by init)")
	f.IntVar(&run.MaxRuns, "max-runs", 0, "Puppet runs at once in the fleet (0: only the limits of the steps)")
	f.IntVar(&run.MaxCompiles, "max-compiles", 200, "nodes that compile at once while they converge")
	f.IntVar(&run.Reserve, "reserve", 0, "MiB of the disk that new work leaves free (0: 64 MiB, or a twentieth of the disk if that is less)")
	f.IntVar(&run.KeepJobs, "keep-jobs", 1000, "how many finished jobs to keep, with their runs; older ones stay only in the audit trail")
	f.IntVar(&run.KeepReports, "keep-reports", 20_000, "how many reports to keep, with their logs; a run's outcome stays as long as its job")
	f.DurationVar(&run.KeepReportsFor, "keep-reports-for", 90*24*time.Hour, "how long to keep reports at most")
	f.DurationVar(&run.ScrubEvery, "scrub-every", 7*24*time.Hour, "how often to read all stored content, to find what the disk has lost (0: never); a backup also reads it")
	f.StringVar(&run.AuditFile, "audit-file", "", "append each entry of the audit trail to this file, as a line of JSON, as it happens")
	f.BoolVar(&run.AuditSyslog, "audit-syslog", false, "send each entry of the audit trail to syslog (facility authpriv), as it happens")
	f.StringVar(&run.Metrics, "metrics", "", "address of this machine at which Prometheus may scrape without a certificate, like 127.0.0.1:9150 (default: none)")
	f.DurationVar(&run.Silence, "lost-after", 30*time.Second, "how long a node may be silent before it is lost")
	cmd.AddCommand(newServerInitCommand(o), newServerBackupCommand(o), newServerRestoreCommand(o), newServerNewEpochCommand(o), newServerTrustCACommand(o), newServerReportsCommand(o))
	return cmd
}

func newServerInitCommand(o *options) *cobra.Command {
	var in ServerInit
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a server: its CA, its bus, the first operator, the signing key",
		Long: `Makes the server's data directory. In the operator's directory, the
command makes the first operator's certificate and the code-signing key. The server does
not keep the code-signing key: move the operator's directory to the operator's machine.`,
		Example: "  tutti server init --host tutti.example.org --unit",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.OperatorDir = o.conn.OperatorDir
			if in.Host == "" {
				host, err := os.Hostname()
				if err != nil {
					return err
				}
				in.Host = host
			}
			if err := o.deps.InitServer(in); err != nil {
				return err
			}
			next := "started, as the systemd unit tutti-server"
			backup := "none yet; each day, into /var/backups/tutti: systemctl enable --now tutti-backup.timer"
			if !in.Unit {
				next = "start it with: tutti server --dir " + filepath.Clean(in.Dir)
				backup = "none yet; make one with: tutti server backup --into DIRECTORY"
			}
			text := fmt.Sprintf(`Made the server of %s.
  data       %s
  operator   %s   (certificate and code-signing key of %q: move it to the operator's machine)
  server     %s
  backup     %s
Let nodes in with:  tutti token create --name NODE | ssh NODE tutti join
`, in.Host, in.Dir, in.OperatorDir, in.Operator, next, backup)
			return o.done(cmd, text, map[string]any{"host": in.Host, "dir": in.Dir, "operator_dir": in.OperatorDir, "operator": in.Operator})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultServerDir, "data directory")
	f.StringVar(&in.Host, "host", "", "name or address by which nodes reach the server (default: this host's name)")
	f.StringSliceVar(&in.Also, "also", nil, "further names or addresses of the server (for its certificate)")
	f.StringVar(&in.Listen, "listen", DefaultListen, "address for operators and joining nodes")
	f.StringVar(&in.Bus, "bus", DefaultBus, "address for nodes")
	f.StringVar(&in.Operator, "name", "admin", "the first operator's name")
	f.BoolVar(&in.Unit, "unit", false, "install and start the systemd unit tutti-server")
	return cmd
}
