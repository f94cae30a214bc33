package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"snowgate/clients"
)

// Bounds of the configuration file.
const (
	// MaxFileSize is the largest file that is read, in bytes.
	MaxFileSize = 8 << 20
	// maxDepth is how deep values may be nested; the schema needs 6.
	maxDepth = 16
)

// File is the content of the configuration file. Treat it as immutable; it is
// then safe for concurrent use.
type File struct {
	Clients []clients.Client
	Routes  []Route
	// Notes name settings that are no fault but may be unintended, such as a secret that has
	// expired. They are for the log.
	Notes []Fault

	// sum is that of the bytes that were read, whether they were valid or not;
	// zero if none were read.
	sum [sha256.Size]byte
}

// Spent returns a File without the content, which [Watch] still knows to be the same. It is for a
// process that has put the content in force and keeps a [Config] for long.
func (f File) Spent() File { return File{sum: f.sum} }

// fileRules is what the content of a file is judged by.
type fileRules struct {
	maxTTL time.Duration // longest token_ttl; 0 if not known
	now    time.Time
	// subject stands for the path in a fault about the file as a whole.
	subject string
}

// readFile reads and checks the file at path. An error is of type [Faults].
func readFile(path string, rules fileRules) (File, error) {
	content, err := readContent(path)
	return checkContent(path, content, err, rules)
}

// checkContent turns what [readContent] has returned for path into a File. An error is of type
// [Faults].
func checkContent(path string, content []byte, err error, rules fileRules) (File, error) {
	if err != nil {
		return File{}, Faults{{Variable: Prefix + "CONFIG", Message: rules.subject + " " + err.Error()}}
	}
	return parseFile(path, content, rules)
}

// readContent reads at most [MaxFileSize] bytes from a regular file. Its errors
// are the end of a sentence whose subject is the path.
func readContent(path string) ([]byte, error) {
	// A FIFO would block in Open, and what is not a regular file cannot be read
	// a second time: so look first.
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	case info.IsDir():
		return nil, errors.New("is a directory; Docker makes one where a mounted file does not exist")
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", cause(err))
	case len(content) > MaxFileSize:
		return nil, fmt.Errorf("is larger than %d bytes", MaxFileSize)
	}
	return content, nil
}

// parseFile turns the content of the file at path into its values. An error is
// of type [Faults]; of the File there is then only the sum.
func parseFile(path string, content []byte, rules fileRules) (File, error) {
	d := &decoder{path: path}
	file := File{sum: sha256.Sum256(content)}
	if root := d.document(content); root != nil && d.plain(root) {
		top := d.object(root, "the file", "clients", "routes")
		file.Clients = d.clients(top.keys["clients"], rules)
		file.Routes = d.routes(top.keys["routes"])
	}
	if len(d.faults) > 0 {
		return File{sum: file.sum}, d.faults.sorted()
	}
	file.Notes = d.notes.sorted()
	return file, nil
}

// document returns the root of the only document in content, nil after a fault.
func (d *decoder) document(content []byte) *yaml.Node {
	if !d.legible(content) {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(content),
		yaml.WithUniqueKeys(false), // the decoder reports them, with both places
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth), loaderlimits.AliasValue(0))))
	if err != nil {
		panic(fmt.Sprintf("config: the options of the YAML loader are wrong: %v", err))
	}
	var first, second yaml.Node
	switch err := loader.Load(&first); {
	case errors.Is(err, io.EOF) || err == nil && isNull(first.Content[0]):
		// A file that was just cut to nothing must not take everything away.
		d.fault(&yaml.Node{Line: 1, Column: 1}, "the file is empty; write \"clients: []\" to have no clients and no routes")
		return nil
	case err != nil:
		d.syntax(content, err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		d.fault(&second, "a second document begins here; only one is allowed")
	case !errors.Is(err, io.EOF):
		d.syntax(content, err)
	}
	return first.Content[0]
}

// legible finds broken UTF-8 and control characters, which the YAML reader refuses without naming
// the place.
func (d *decoder) legible(content []byte) bool {
	line, column := 1, 1
	for len(content) > 0 {
		r, size := utf8.DecodeRune(content)
		switch {
		case r == utf8.RuneError && size == 1:
			d.fault(&yaml.Node{Line: line, Column: column}, "this is not UTF-8")
			return false
		case r == '\n':
			line, column = line+1, 0
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f:
			d.fault(&yaml.Node{Line: line, Column: column}, "control character %U", r)
			return false
		}
		content = content[size:]
		column++
	}
	return true
}

// syntax records an error of the YAML library.
func (d *decoder) syntax(content []byte, err error) {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		d.fault(&yaml.Node{}, "not YAML: %s", quote(err.Error()))
		return
	}
	message := at.Message
	if line := lineOf(content, at.Mark.Line); bytes.ContainsRune(line[:len(line)-len(bytes.TrimLeft(line, " \t"))], '\t') {
		d.fault(&yaml.Node{Line: at.Mark.Line, Column: bytes.IndexByte(line, '\t') + 1}, "not YAML: a tab; YAML is indented with spaces")
		return
	}
	if looksSecret(message) {
		message = redacted
	}
	if at.ContextMsg != "" {
		message = at.ContextMsg + ": " + message
	}
	d.fault(&yaml.Node{Line: at.Mark.Line, Column: at.Mark.Column}, "not YAML: %s", message)
}

// lineOf returns a line of content by its number from 1, nothing if there is none.
func lineOf(content []byte, number int) []byte {
	for line := range bytes.Lines(content) {
		if number--; number == 0 {
			return line
		}
	}
	return nil
}
