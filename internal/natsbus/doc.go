// Package natsbus is the log, the blobs and the transport between nodes and server, on NATS with JetStream.
//
// The log is one stream with one writer. Every append names the sequence that it follows. NATS refuses it if another
// event is there, and a writer that is refused ends. (Rejected: compare-and-set per subject. A deposed writer would
// still own the other subjects.)
//
// A node speaks on subjects that contain its public key and on no others:
//
//	n.<KEY>.<op>   node → server   calls and messages
//	i.<KEY>.<…>    server → node   answers
//	d.<KEY>.<op>   server → node   doorbells
//
// The bus enforces who may publish and subscribe where. The server enforces that an answer goes to the node that asked:
// it answers only to i.<KEY>.… of the key in the subject, and only the holder of the key can have used that subject.
package natsbus
