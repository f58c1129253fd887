//! CFB over whole blocks, with the initialization vector that kcp-go uses for all datagrams.
//!
//! Each block of the keystream is the encryption of the previous block of ciphertext; the first
//! block is the encryption of the vector. A partial block uses the first bytes of its keystream.

use std::fmt;

use cipher::array::Array;
use cipher::consts::{U8, U16};
use cipher::{BlockCipherEncrypt, BlockSizeUser};
use kcp_go::envelope::Cipher;

/// Ciphers with shorter blocks use its first bytes.
const VECTOR: [u8; 16] = [
    0xa7, 0x73, 0x4f, 0x9c, 0x12, 0xac, 0x1b, 0x01, 0xa4, 0x15, 0xf2, 0xc1, 0xfc, 0x78, 0xe6, 0x6b,
];

/// Blocks that are decrypted together: some ciphers work on several blocks at once.
const BATCH: usize = 8;

/// Encrypts blocks of `N` bytes.
pub(super) trait Block<const N: usize>: Send + Sync {
    fn encrypt(&self, block: &mut [u8; N]);

    fn encrypt_all(&self, blocks: &mut [[u8; N]]) {
        for block in blocks {
            self.encrypt(block);
        }
    }
}

/// A block cipher in CFB.
pub(super) struct Cfb<B, const N: usize> {
    block: B,
    /// The encrypted vector: the first block of all keystreams.
    first: [u8; N],
}

impl<B: Block<N>, const N: usize> Cfb<B, N> {
    pub(super) fn new(block: B) -> Self {
        let mut first = [0; N];
        for (byte, vector) in first.iter_mut().zip(VECTOR) {
            *byte = vector;
        }
        block.encrypt(&mut first);
        Self { block, first }
    }
}

impl<B, const N: usize> fmt::Debug for Cfb<B, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cfb").field("block", &N).finish_non_exhaustive()
    }
}

impl<B: Block<N>, const N: usize> Cipher for Cfb<B, N> {
    fn encrypt(&self, datagram: &mut [u8]) {
        let mut stream = self.first;
        let (blocks, rest) = datagram.as_chunks_mut::<N>();
        for block in blocks {
            add(block, &stream);
            stream = *block;
            self.block.encrypt(&mut stream);
        }
        add(rest, &stream);
    }

    fn decrypt(&self, datagram: &mut [u8]) {
        let mut first = self.first;
        let (blocks, rest) = datagram.as_chunks_mut::<N>();
        for batch in blocks.chunks_mut(BATCH) {
            let mut streams = [[0; N]; BATCH];
            let streams = &mut streams[..batch.len()];
            streams.copy_from_slice(batch);
            self.block.encrypt_all(streams);
            for (block, stream) in batch.iter_mut().zip(streams) {
                add(block, &first);
                first = *stream;
            }
        }
        add(rest, &first);
    }
}

/// Adds the first bytes of the keystream.
fn add<const N: usize>(block: &mut [u8], stream: &[u8; N]) {
    for (byte, stream) in block.iter_mut().zip(stream) {
        *byte ^= stream;
    }
}

/// A cipher of another crate.
pub(super) struct Foreign<C>(pub(super) C);

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + Send + Sync> Block<16>
    for Foreign<C>
{
    fn encrypt(&self, block: &mut [u8; 16]) {
        self.0.encrypt_block(block.into());
    }

    fn encrypt_all(&self, blocks: &mut [[u8; 16]]) {
        self.0.encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
    }
}

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U8> + Send + Sync> Block<8> for Foreign<C> {
    fn encrypt(&self, block: &mut [u8; 8]) {
        self.0.encrypt_block(block.into());
    }

    fn encrypt_all(&self, blocks: &mut [[u8; 8]]) {
        self.0.encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
    }
}
