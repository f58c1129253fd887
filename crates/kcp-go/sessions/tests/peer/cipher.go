package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha1"
	"encoding/hex"
	"fmt"

	"github.com/xtaci/kcp-go/v5"
	"golang.org/x/crypto/chacha20poly1305"
)

// The key of all ciphers: 32 bytes of which each takes as many as it needs.
func key() ([]byte, error) {
	if *rawKey != "" {
		return hex.DecodeString(*rawKey)
	}
	return pbkdf2.Key(sha1.New, *passphrase, []byte("kcp-go"), 4096, 32)
}

// The cipher with this name in kcptun. The last four are reached through the library alone.
func cipherOf(name string) (kcp.BlockCrypt, error) {
	if name == "null" {
		return nil, nil
	}
	key, err := key()
	if err != nil {
		return nil, err
	}
	least := map[string]int{
		"aes-128": 16, "aes-192": 24, "sm4": 16, "cast5": 16, "3des": 24, "tea": 16, "xtea": 16,
		"aes-128-gcm": 16, "aes-192-gcm": 24,
	}[name]
	if least == 0 {
		least = 32
	}
	if len(key) < least {
		return nil, fmt.Errorf("%s needs %d bytes of key", name, least)
	}
	key = key[:least]
	switch name {
	case "aes", "aes-128", "aes-192":
		return kcp.NewAESBlockCrypt(key)
	case "twofish":
		return kcp.NewTwofishBlockCrypt(key)
	case "sm4":
		return kcp.NewSM4BlockCrypt(key)
	case "blowfish":
		return kcp.NewBlowfishBlockCrypt(key)
	case "cast5":
		return kcp.NewCast5BlockCrypt(key)
	case "3des":
		return kcp.NewTripleDESBlockCrypt(key)
	case "tea":
		return kcp.NewTEABlockCrypt(key)
	case "xtea":
		return kcp.NewXTEABlockCrypt(key)
	case "salsa20":
		return kcp.NewSalsa20BlockCrypt(key)
	case "xor":
		return kcp.NewSimpleXORBlockCrypt(key)
	case "none":
		return kcp.NewNoneBlockCrypt(key)
	case "aes-128-gcm", "aes-192-gcm", "aes-256-gcm":
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return sealed(cipher.NewGCM(block))
	case "chacha20-poly1305":
		return sealed(chacha20poly1305.New(key))
	case "xchacha20-poly1305":
		return sealed(chacha20poly1305.NewX(key))
	}
	return nil, fmt.Errorf("no cipher %q", name)
}

func sealed(aead cipher.AEAD, err error) (kcp.BlockCrypt, error) {
	if err != nil {
		return nil, err
	}
	return kcp.NewAEADCrypt(aead), nil
}
