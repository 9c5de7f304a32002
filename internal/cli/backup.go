package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// ServerBackup says which server is copied, and where to.
type ServerBackup struct {
	Dir, Socket, File string
	Out               io.Writer
	// Into is a directory for a file that is named by the time; File is empty then. All but the latest Keep
	// of those files are removed when the new one is there.
	Into string
	Keep int
}

// BackupMade is what a backup has.
type BackupMade struct {
	File    string       `json:"file"`
	MadeAt  time.Time    `json:"made_at,omitzero"`
	Seq     uint64       `json:"seq"` // of its last event
	Link    tutti.Digest `json:"link"`
	Entries int          `json:"entries"`
	Blobs   int          `json:"blobs"`
	Removed []string     `json:"removed,omitempty"` // older backups
}

// Backups makes and restores backups of a server.
type Backups interface {
	Backup(ctx context.Context, o ServerBackup) (BackupMade, error)
	Restore(ctx context.Context, file, dir string) (BackupMade, error)
	// NewEpoch lets the next start of a server begin another epoch, above one that was seen.
	NewEpoch(dir string, above uint64) error
}

func newServerBackupCommand(o *options) *cobra.Command {
	var in ServerBackup
	cmd := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Copy the server into a file, as of one event; - is standard output",
		Long: `Copies configuration, identity, log and content. The server may run: then it is
asked through its local socket. FILE holds the key of the fleet's CA: whoever
has it is the fleet's server. Keep it encrypted.
With --into DIR the file is named by the time, and older ones are removed. The
timer tutti-backup does that each day: systemctl enable --now tutti-backup.timer`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 == (in.Into != "") {
				return tutti.Errorf(tutti.CodeInvalid, "give the name of a file, or a directory with --into")
			}
			if in.Keep < 1 {
				return tutti.Errorf(tutti.CodeInvalid, "--keep %d: at least 1", in.Keep)
			}
			if len(args) == 1 {
				in.File = args[0]
			}
			in.Socket, in.Out = o.conn.Socket, rawOf(cmd.OutOrStdout())
			made, err := o.deps.Backups.Backup(cmd.Context(), in)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s: up to event %d (%d events, %d blobs). It holds the CA's key: keep it encrypted.\n", made.File, made.Seq, made.Entries, made.Blobs)
			for _, file := range made.Removed {
				text += "Removed " + file + "\n"
			}
			if in.File == "-" {
				_, err := io.WriteString(cmd.ErrOrStderr(), text)
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), made)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultServerDir, "data directory")
	f.StringVar(&in.Into, "into", "", "directory for the backups, made if it is not there")
	f.IntVar(&in.Keep, "keep", 7, "with --into: how many backups stay there")
	return cmd
}

func newServerNewEpochCommand(o *options) *cobra.Command {
	dir := DefaultServerDir
	var above uint64
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Say that this log, which was put back, is the fleet's from now on",
		Long: `Nodes and operators refuse a server whose log has gone back, and one of two that
were made from one log. Say here which one is right: its next start begins the
next epoch, and everybody goes on with it. What it does not know is lost, and
nodes that have run meanwhile run once more. "server restore" does this itself.
The number of an epoch is a time. If it was seen while a clock was ahead, the error
says above which number to begin. The server must not run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.deps.Backups.NewEpoch(dir, above); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("The next start of the server in %s begins another epoch. Never let another server of this fleet run beside it.\n", dir), map[string]any{"dir": dir})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "data directory")
	cmd.Flags().Uint64Var(&above, "above", 0, "begin an epoch with a higher number than this one, which somebody has seen")
	return cmd
}

func newServerRestoreCommand(o *options) *cobra.Command {
	dir := DefaultServerDir
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a server's data directory from a backup",
		Long: `Verifies the whole backup, then makes the directory, which must be empty or not
exist. Nodes and operators find the server under the name that it had, and come
by themselves. What was acknowledged after the backup is lost.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			made, err := o.deps.Backups.Restore(cmd.Context(), args[0], dir)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), made)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), `Restored %s as of %s: up to event %d (%d events, %d blobs).
What was acknowledged after that is lost: tutti audit verify tells every operator how much that was.
Never let the old server run beside this one. Start this one with: tutti server --dir %s
`, dir, made.MadeAt.Local().Format(time.DateTime), made.Seq, made.Entries, made.Blobs, dir)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", DefaultServerDir, "data directory to make")
	return cmd
}
