"""Counting in PTX and SASS."""

from graphdiff.hardware.machine import ptx_rounds, resources, sass_fused, sass_rounds


def test_ptx():
    text = """
	cvt.rn.bf16x2.f32 	%r1, %r2, %r3;
	cvt.rn.bf16x2.f32 	%r1, 0f00000000, %r3;
	@%p1 cvt.rn.bf16.f32 	%rs1, %r3;
	cvt.rn.f16.f32 	%rs1, %r3;
	cvt.rn.satfinite.e4m3x2.f32 	%rs1, %r3, %r4;
	fma.rn.bf16x2 	%r1, %r2, %r3, %r4;
	mul.rn.bf16 	%rs1, %rs2, %rs3;
	fma.rn.f32.bf16 	%r2, %rs1, %rs9, %r42;
	cvt.f32.bf16 	%r42, %rs17;
	cvt.rn.f32.s32 	%r42, %r17;
	fma.rn.f32 	%r1, %r2, %r3, %r4;
	neg.bf16 	%rs1, %rs2;
	// cvt.rn.bf16.f32 %rs1, %r3;
"""
    assert ptx_rounds(text) == {"cvt.rn.bf16x2.f32": 3, "cvt.rn.bf16.f32": 1, "cvt.rn.f16.f32": 1, "cvt.rn.satfinite.e4m3x2.f32": 2,
                                "fma.rn.bf16x2": 2, "mul.rn.bf16": 1}


def test_sass():
    text = """
        /*0560*/                   F2FP.BF16.F32.PACK_AB R2, R26, R27 ;        /* 0x1 */
        /*0570*/               @P0 F2FP.BF16.F32.PACK_AB R2, RZ, R27 ;        /* 0x1 */
        /*0580*/                   HFMA2.MMA.BF16_V2 R5, R5, 1, 1, R0 ;         /* 0x3f803f8005057835 */
        /*0590*/                   HFMA2.BF16_V2 R5, -RZ, RZ, 0, 0 ;         /* 0x3f803f8005057835 */
        /*05a0*/                   HADD2.BF16_V2 R2, R2, R25 ;                  /* 0x0000001902027230 */
        /*05b0*/                   HADD2.F32 R2, -RZ, R25.H0_H0 ;                  /* 0x0000001902027230 */
        /*05c0*/                   FFMA R2, R2, R25, R3 ;                  /* 0x0000001902027230 */
"""
    assert sass_rounds("        /*0560*/                   F2FP.BF16.PACK_AB R2, R26, R27 ;        /* 0x1 */") == {"F2FP.BF16.PACK_AB": 2}
    assert not sass_rounds("        /*0560*/                   F2FP.F16.E4M3.UNPACK_B R2, R26 ;        /* 0x1 */")
    assert sass_rounds(text) == {"F2FP.BF16.F32.PACK_AB": 3, "HFMA2.MMA.BF16_V2": 2, "HADD2.BF16_V2": 2}


def test_products_and_sums_in_one():
    one, line = "        /*0580*/                   {} ;         /* 0x3f803f8005057835 */", "HFMA2.BF16_V2 R5, R5, R6, R0"
    assert sass_fused(one.format(line)) == 1
    for other in ("HFMA2.MMA.BF16_V2 R5, R5, 1, 1, R0", "HFMA2.BF16_V2 R2, R26, R27, -RZ", "HMUL2.BF16_V2 R4, R4, R19"):
        assert sass_fused(one.format(other)) == 0


def test_resources():
    log = "ptxas info    : x\n    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 32 registers, used 0 barriers\n"
    assert resources(log) == (32, 16, 8)
    assert resources("nothing") == (None, None, None)


def test_conversions_of_one_number():
    """Counted once each: ptxas pairs conversions where it can, and has another instruction where it cannot."""
    line = "        /*07a0*/                   {} R12, R12 ;                         /* 0x0000000c000c7304 */"
    assert sass_rounds(line.format("F2F.BF16.F32")) == {"F2F.BF16.F32": 1}
    assert not sass_rounds(line.format("F2F.F32.F16")) and not sass_rounds(line.format("F2F.F64.F32"))
