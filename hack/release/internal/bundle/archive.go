// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// entry is a file in an archive.
type entry struct {
	name string
	mode fs.FileMode
	data []byte
}

// ArchiveName is the name of the archive with a binary: a zip file for Windows, a compressed tar file elsewhere.
func ArchiveName(source build.Source, b build.Binary) string {
	extension := ".tar.gz"
	if b.Platform.OS == "windows" {
		extension = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s%s", b.Program.Name, source.Version, b.Platform.OS, b.Platform.Arch, extension)
}

// WriteArchive writes the archive of a binary into a folder, with the licence beside the binary.
func WriteArchive(source build.Source, b build.Binary, folder string) error {
	program, err := os.ReadFile(b.Path)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(source.Root, "LICENSE"))
	if err != nil {
		return err
	}
	entries := []entry{{name: "LICENSE", mode: 0o644, data: license}, {name: b.FileName(), mode: 0o755, data: program}}
	pack := packTar
	if b.Platform.OS == "windows" {
		pack = packZip
	}
	path := filepath.Join(folder, ArchiveName(source, b))
	var archive bytes.Buffer
	if err := pack(&archive, entries, source.Time); err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	return os.WriteFile(path, archive.Bytes(), 0o644)
}

func packTar(w io.Writer, entries []entry, modified time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(compressed)
	if err := writeTar(writer, entries, modified); err != nil {
		return err
	}
	return errors.Join(writer.Close(), compressed.Close())
}

func writeTar(writer *tar.Writer, entries []entry, modified time.Time) error {
	for _, e := range entries {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)), ModTime: modified,
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		if _, err := writer.Write(e.data); err != nil {
			return err
		}
	}
	return nil
}

func packZip(w io.Writer, entries []entry, modified time.Time) error {
	writer := zip.NewWriter(w)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(e.mode)
		content, err := writer.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := content.Write(e.data); err != nil {
			return err
		}
	}
	return writer.Close()
}

// PackFolder writes a folder as tar file without compression, for example an OCI layout: its layers are compressed.
func PackFolder(folder, path string, modified time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	writer := tar.NewWriter(out)
	err = filepath.WalkDir(folder, func(file string, found fs.DirEntry, err error) error { // In the order of names.
		if err != nil || found.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		return writeTar(writer, []entry{{name: filepath.ToSlash(name), mode: 0o644, data: data}}, modified)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	return writer.Close()
}

// ChecksumsFile is the name of the file that WriteChecksums writes.
const ChecksumsFile = "checksums.txt"

// WriteChecksums writes the SHA-256 of each file in a folder, as sha256sum reads it.
func WriteChecksums(folder string) error {
	found, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var lines []string
	for _, file := range found {
		if file.Name() == ChecksumsFile {
			continue
		}
		sum, err := fileSum(filepath.Join(folder, file.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+file.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2*sha256.Size:], b[2*sha256.Size:]) })
	return os.WriteFile(filepath.Join(folder, ChecksumsFile), []byte(strings.Join(lines, "")), 0o644)
}

func fileSum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
