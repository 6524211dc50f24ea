// Read by the preprocessor alone, with -march=native: the best instruction set that this machine runs, of those that are built.
#if defined(__AVX2__) && defined(__BMI__) && defined(__BMI2__) && defined(__F16C__) && defined(__FMA__) && \
    defined(__LZCNT__) && defined(__MOVBE__)
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
avx512
#else
avx2
#endif
#else
baseline
#endif
